/* rk.h: the program's C headers, as C++ sees them. */
#ifndef RK_KERNELS_RK_H
#define RK_KERNELS_RK_H

#define _Static_assert static_assert
extern "C" {
#include "backend/backend.h"
}
#undef _Static_assert

#endif
