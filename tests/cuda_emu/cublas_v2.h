/* cublas_v2.h (emulation): the calls of cuBLAS that kernels/ makes: one GEMM, as plain loops when the stream gets
 * there. */
#ifndef RK_EMU_CUBLAS_V2_H
#define RK_EMU_CUBLAS_V2_H

#include <cuda_runtime.h>

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_ALLOC_FAILED = 3, CUBLAS_STATUS_EXECUTION_FAILED = 13 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
typedef struct emu_cublas *cublasHandle_t;

cublasStatus_t cublasCreate(cublasHandle_t *h);
cublasStatus_t cublasDestroy(cublasHandle_t h);
cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s);
cublasStatus_t cublasSetWorkspace(cublasHandle_t h, void *p, size_t bytes);
const char *cublasGetStatusString(cublasStatus_t s);
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                            const void *alpha,
                            const void *a, cudaDataType_t a_type, int lda, const void *b, cudaDataType_t b_type,
                            	int ldb, const void *beta,
                            void *c, cudaDataType_t c_type, int ldc, cublasComputeType_t compute,
                            	cublasGemmAlgo_t algo);

#endif
