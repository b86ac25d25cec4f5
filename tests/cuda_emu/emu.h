/* emu.h: what a test can set and ask of the emulated device.  A whole program on it (tool_emu) takes the arguments of emu_machine
 * from EMU_MACHINE and those of emu_fail from EMU_FAIL, blanks between them. */
#ifndef RK_EMU_H
#define RK_EMU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void emu_seed(uint64_t seed);			/* of the order of blocks and threads */
/* The device and driver that the machine seems to have.  memory_bytes: what cudaMalloc can give in all. */
void emu_machine(int n_device, int driver_version, int major, int minor, uint64_t memory_bytes);
/* The n-th call (1: the next) of a function of the runtime or of cuBLAS, or "launch" of a kernel, fails with this cudaError_t.
 * Faults of the device (from 200 up) stay: all calls after it fail too.  n 0: all is well again. */
void emu_fail(const char *call, int n, int error);
uint64_t emu_n_launch(void);			/* kernels run so far */
uint64_t emu_n_replay(void);			/* graphs launched so far */
uint64_t emu_n_alloc(void);			/* calls of cudaMalloc and cudaMallocHost so far */
uint64_t emu_bytes_held(void);			/* device memory not freed */

#ifdef __cplusplus
}
#endif
#endif
