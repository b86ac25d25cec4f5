#!/usr/bin/env bash
# cuda_build.sh [BUILD]: the program with the CUDA backend, in BUILD (default build-cuda), for tests/test_cuda_build.py.
#
# nvcc is taken from PATH, CUDA_HOME or /usr/local/cuda, else the compiler and its libraries are installed from PyPI into build/nvcc.
# Exit status: 0 built, 77 there is no compiler and none could be installed (one line says so), else the build failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

build=${1:-build-cuda}
packages=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85
	nvidia-cuda-runtime==13.0.96 nvidia-cublas==13.0.2.14)

nvcc=$(PATH=$PATH:${CUDA_HOME:+$CUDA_HOME/bin:}/usr/local/cuda/bin command -v nvcc)
if [[ -z $nvcc ]]; then
	echo "cuda-build: no nvcc here: installing it from PyPI into build/nvcc"
	if ! { python3 -m venv build/nvcc && build/nvcc/bin/pip install -q "${packages[@]}"; }; then
		echo "cuda-build: NOT COMPILED: there is no nvcc, and it could not be installed from PyPI" >&2
		exit 77
	fi
	nvcc=$(compgen -G 'build/nvcc/lib/python3*/site-packages/nvidia/cu13/bin/nvcc')
	nvcc=$(realpath "$nvcc")
	export CUDA_HOME=${nvcc%/bin/nvcc}	# its libraries, whatever toolkit there is besides
	chmod +x "$CUDA_HOME"/bin/* "$CUDA_HOME"/nvvm/bin/*
fi
nvcc=$(realpath "$nvcc")
make -s CUDA=1 BUILD="$build" NVCC="$nvcc" "$build/refreshkv"
