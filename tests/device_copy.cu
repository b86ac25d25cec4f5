/* device_copy.cu: prints what the first GPU copies, in GB/s of reads and writes: the bandwidth that kernels are held against. */
#include <cuda_runtime.h>
#include <stdio.h>

int main()
{
	const size_t bytes = (size_t)1 << 30;
	const int n = 20;
	char *a, *b;
	cudaEvent_t t0, t1;
	float ms = 0;

	if (cudaMalloc(&a, bytes) || cudaMalloc(&b, bytes) || cudaEventCreate(&t0) || cudaEventCreate(&t1))
		return 1;
	for (int i = 0; i <= n; i++) {
		if (i == 1)	/* the first one warms up */
			cudaEventRecord(t0);
		cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice);
	}
	cudaEventRecord(t1);
	if (cudaEventSynchronize(t1) || cudaEventElapsedTime(&ms, t0, t1))
		return 1;
	printf("%.1f\n", 2.0 * (double)bytes * n / (double)ms / 1e6);
	return 0;
}
