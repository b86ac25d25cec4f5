/* machine.h: included before everything else: the machine seems to have AVX-512, VNNI too. */
#define __builtin_cpu_supports(set) (!__builtin_strncmp(set, "avx512", 6) || __builtin_cpu_supports(set))
