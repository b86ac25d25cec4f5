/* machine.h: what this machine can do at most: the ceilings that measured speeds are held against. */
#ifndef RK_CMD_MACHINE_H
#define RK_CMD_MACHINE_H

/* Bytes per second of plain reads by n_thread threads (0: one per available core), the best of a few passes over 64 MB;
 * NAN when there is no memory for it.  Takes some 30 ms. */
double rk_machine_bandwidth(int n_thread);
/* Floating-point operations per second of f32 matrix products (oneDNN) of the size that a prefill makes; NAN as above. */
double rk_machine_gemm(int n_thread);

#endif
