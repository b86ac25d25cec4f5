/* emu.h: what a test can set and ask of the emulated device. */
#ifndef RK_EMU_H
#define RK_EMU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void emu_seed(uint64_t seed);			/* of the order of blocks and threads */
/* The device and driver that the machine seems to have.  memory_bytes: what cudaMalloc can give in all. */
void emu_machine(int n_device, int driver_version, int major, int minor, uint64_t memory_bytes);
/* From now on the n-th waiting for a stream (1: the next) fails with this cudaError_t, as do all calls after it; 0: no
 * more. */
void emu_fail_wait(int n, int error);
uint64_t emu_n_launch(void);			/* kernels run so far */
uint64_t emu_n_replay(void);			/* graphs launched so far */
uint64_t emu_n_alloc(void);			/* calls of cudaMalloc and cudaMallocHost so far */
uint64_t emu_bytes_held(void);			/* device memory not freed */

#ifdef __cplusplus
}
#endif
#endif
