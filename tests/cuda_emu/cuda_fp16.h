/* cuda_fp16.h (emulation): conversions between f32 and f16, by the program's own definition of them. */
#ifndef RK_EMU_CUDA_FP16_H
#define RK_EMU_CUDA_FP16_H

extern "C" {
float rk_half_to_float(uint16_t h);
uint16_t rk_float_to_half(float f);
}

struct __half { uint16_t bits; };
inline float __half2float(__half h) { return rk_half_to_float(h.bits); }
inline __half __float2half_rn(float f) { return __half{ rk_float_to_half(f) }; }
inline __half __ushort_as_half(unsigned short u) { return __half{ u }; }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }

#endif
