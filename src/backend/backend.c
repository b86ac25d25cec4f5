/* backend.c: chooses the device by name.  See backend.h. */
#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

#define USE_CPU (-1)

#ifndef RK_CUDA	/* built without CUDA: the same answers as from a machine without a GPU */
bool rk_cuda_usable(char why[128])
{
	snprintf(why, 128, "this build has no CUDA");
	return false;
}

int rk_cuda_open(rk_backend **b, const rk_model *m, const rk_backend_cfg *cfg, int device, rk_err *e)
{
	(void)m;
	(void)cfg;
	*b = NULL;
	return rk_fail(e, RK_EUSAGE, "device cuda:%d: this build has no CUDA; use --device cpu", device);
}

int rk_cuda_probe(int device, char name[64], char isa[24], rk_err *e)
{
	(void)name;
	(void)isa;
	return rk_fail(e, RK_EUSAGE, "device cuda:%d: this build has no CUDA; use --device cpu", device);
}
#endif

/* USE_CPU or the number of a GPU; why: what keeps `auto` from a GPU, or "". */
static int parse_device(const char *name, int *gpu, char why[128], rk_err *e)
{
	char end;

	*why = 0;
	*gpu = USE_CPU;
	if (!name || !strcmp(name, "auto")) {
		*gpu = rk_cuda_usable(why) ? 0 : USE_CPU;
		return 0;
	}
	if (!strcmp(name, "cpu"))
		return 0;
	if (!strcmp(name, "cuda")) {
		*gpu = 0;
		return 0;
	}
	if (strlen(name) > 5 && name[5] >= '0' && name[5] <= '9' && sscanf(name, "cuda:%3d%c", gpu, &end) == 1)
		return 0;
	return rk_fail(e, RK_EUSAGE, "device %s: not one of auto, cpu, cuda:N", name);
}

/* The CPU's name: in a program for GPUs it says why it is not one of them. */
static void name_cpu(char device[64], const char *why)
{
#ifdef RK_CUDA
	if (*why) {
		snprintf(device, 64, "cpu (%.50s)", why);
		return;
	}
#endif
	(void)why;
	snprintf(device, 64, "cpu");
}

int rk_backend_open(rk_backend **b, const rk_model *m, const rk_backend_cfg *cfg, rk_err *e)
{
	char why[128];
	int gpu;

	*b = NULL;
	if (parse_device(cfg->device, &gpu, why, e))
		return -1;
	if (gpu != USE_CPU)
		return rk_cuda_open(b, m, cfg, gpu, e);
	if (rk_cpu_open(b, m, cfg, e))
		return -1;
	name_cpu((*b)->device, why);
	return 0;
}

int rk_backend_probe(const rk_backend_cfg *cfg, char device[64], char isa[24], int *n_thread, rk_err *e)
{
	char why[128];
	int gpu;

	if (parse_device(cfg->device, &gpu, why, e))
		return -1;
	*n_thread = 1;
	if (gpu != USE_CPU)
		return rk_cuda_probe(gpu, device, isa, e);
	name_cpu(device, why);
	return rk_cpu_probe(cfg, isa, n_thread, e);
}

void rk_backend_close(rk_backend *b)
{
	if (b)
		b->ops->close(b);
}
