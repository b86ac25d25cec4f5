/* memory.h: what the machine still has for this process. */
#ifndef RK_BASE_MEMORY_H
#define RK_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RK_HUGE_PAGE ((size_t)2 << 20)

/* Bytes that can be taken without swapping, within the limits of control group and address space; UINT64_MAX where nothing says. */
uint64_t rk_memory_left(void);
/* Does the kernel give huge pages to those who ask by madvise? */
bool rk_huge_pages(void);

#endif
