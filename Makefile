# refreshkv: build, run, test.  `make help` lists the targets.
#
# Needs gcc, make, pkg-config and the Debian packages of DEPS (`make deps` installs what is missing).  Every .c under src/
# is part of the program; *_avx2.c and *_avx512.c are compiled for that instruction set and chosen at run time, everything
# else for the x86-64 baseline.  Objects go to $(BUILD), and so does the program, of which ./refreshkv is a copy.

VERSION := 0.1.0
PREFIX ?= /usr/local
BUILD ?= $(if $(CUDA),build-cuda,build)
CC = gcc
CXX = g++
NVCC = nvcc
MAKEFLAGS += -r $(if $(filter 0,$(MAKELEVEL)),-j$(shell nproc))	# one job per core; a make inside a make shares them

DEPS = gcc g++ libc6-dev make pkg-config git python3 python3-pip python3-pytest python3-jsonschema python3-pyte \
	libdnnl-dev libpcre2-dev libjansson-dev libutf8proc-dev libyaml-dev libncurses-dev nettle-dev libzstd-dev libcmocka-dev
PKGS = libpcre2-8 jansson libutf8proc yaml-0.1 nettle libzstd ncursesw
# Asked once, and before `deps` may have run: targets that need both start a second make.
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null)

CPPFLAGS = -Isrc -D_GNU_SOURCE -DRK_VERSION='"$(VERSION)"' -MMD -MP $(PKG_CFLAGS)
CFLAGS = -std=gnu11 -O3 -g -fopenmp -fno-math-errno -fno-trapping-math -ffp-contract=off -Wall -Wextra -Wshadow \
	-Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror=implicit-function-declaration $(EXTRA)
LDFLAGS = -fopenmp $(EXTRA)
LDLIBS = $(PKG_LIBS) -ldnnl -lpthread -lm
FUZZER = -O1 -fsanitize=fuzzer-no-link,address,undefined
ASAN = -O2 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined

SRC := $(sort $(wildcard src/*.c src/*/*.c))
OBJ := $(SRC:%.c=$(BUILD)/%.o) $(BUILD)/src/base/embedded_data.o
# kernels/ twice: for a GPU where asked for (make CUDA=1), and as plain C++ for the emulated device of tests/cuda_emu.
CU := $(sort $(wildcard kernels/*.cu))
ifdef CUDA
OBJ += $(CU:%.cu=$(BUILD)/%.o)
CPPFLAGS += -DRK_CUDA
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v $(NVCC))))
# lib64 of the toolkit, lib of the packages on PyPI
CUDA_LIB := $(firstword $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib))
LDLIBS += -L$(CUDA_LIB) -Wl,-rpath,$(CUDA_LIB) -lcudart_static -l:libcublas.so.13 -lstdc++ -ldl -lrt
endif
LIB := $(filter-out $(BUILD)/src/main.o,$(OBJ))
EMU := $(CU:kernels/%.cu=$(BUILD)/emu/%.o) $(BUILD)/emu/emu.o $(BUILD)/emu/backend.o \
	$(filter $(addprefix $(BUILD)/src/,base/% model/% policy/% cache/% cpu/% engine/%),$(OBJ))
UNIT_EMU := $(patsubst tests/cuda_emu/%.c,$(BUILD)/tests/%,$(sort $(wildcard tests/cuda_emu/test_*.c)))
PROGRAM_EMU := $(BUILD)/tests/tool_emu
# Four tests once more, with the intrinsics of the AVX-512 kernels written out in C (tests/avx512_emu): objects and what they replace.
AVX512 := $(patsubst %,$(BUILD)/avx512_emu/%.o,lin attn sketch cpu aid_attn_bed skip)
AVX512_REAL := $(patsubst %,$(BUILD)/%.o,src/cpu/lin_avx512 src/cpu/attn_avx512 src/cpu/sketch_avx512 src/cpu/cpu tests/aid_attn_bed)
UNIT_AVX512 := $(patsubst %,$(BUILD)/tests/test_%_avx512,lin attn sketch select)
AID := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/aid_*.c)))	# helpers that tests and benchmarks share
UNIT := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/test_*.c)))
TOOL := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/tool_*.c)))	# programs that the command-line tests call
BENCH := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/bench/bench_*.c)))
FUZZ := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
EMBEDDED := $(sort $(wildcard configs/policies/*.yaml src/trace/report.* themes/*.yaml) docs/handbook.md docs/demo-answer.txt)	# files inside the binary: src/base/embedded.h

QUESTION = What is a token?

.DEFAULT_GOAL := all
.PHONY: all help deps model run test test-asan test-cuda-emu cuda-emu cuda-ptxas unit asan bench bench-kernels bench-peer fuzz fuzzers install clean FORCE
.SECONDARY:
.DELETE_ON_ERROR:

all: refreshkv	## build ./refreshkv (the default)

help:	## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14
	@echo "  variables: BUILD=$(BUILD) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) QUESTION=\"$(QUESTION)\""

deps:	## install the Debian packages that are missing, through apt-get
	@command -v dpkg-query >/dev/null || { echo "deps: not a Debian system; needed here: $(DEPS)" >&2; exit 0; }; \
	missing=$$(for p in $(DEPS); do \
		dpkg-query -W -f '$${db:Status-Status}\n' $$p 2>/dev/null | grep -qx installed || echo $$p; done | xargs); \
	test -n "$$missing" || exit 0; \
	root=; test $$(id -u) = 0 || root=sudo; \
	for tool in apt-get $$root; do command -v $$tool >/dev/null || { \
		echo "deps: no $$tool to install packages with; install these by other means: $$missing" >&2; exit 1; }; done; \
	echo "deps: installing $$missing"; \
	$$root apt-get update -q && $$root env DEBIAN_FRONTEND=noninteractive \
		apt-get -o DPkg::Lock::Timeout=600 install -qy --no-install-recommends $$missing

model: deps	## fetch the default model (98 MB, once per user)
	@models/fetch.sh

run: model	## build, then the demonstration on a terminal; elsewhere answer QUESTION about the handbook
	@$(MAKE) --no-print-directory refreshkv
	@if test -t 1; then exec ./refreshkv demo; fi; model=$$(models/fetch.sh) && ./refreshkv run -m "$$model" -f docs/handbook.md -p "$(QUESTION)"

test: model	## unit tests and command-line tests
	@$(MAKE) --no-print-directory all unit
	@tests/run.sh $(BUILD)

test-asan: model	## the same under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory asan
	@tests/run.sh build-asan

unit: $(UNIT) $(UNIT_EMU) $(UNIT_AVX512) $(TOOL) $(PROGRAM_EMU) $(BUILD)/refreshkv	## build the tests only

asan:	## build program and tests with the sanitizers, in build-asan/
	@$(MAKE) --no-print-directory unit BUILD=build-asan EXTRA='$(ASAN)'

test-cuda-emu:	## the CUDA kernels on an emulated device, under the sanitizers
	@$(MAKE) --no-print-directory cuda-emu BUILD=build-asan EXTRA='$(ASAN)'
	@tests/cuda_emu/run.sh build-asan

cuda-emu: $(UNIT_EMU) $(PROGRAM_EMU) $(BUILD)/tests/tool_tiny

cuda-ptxas: $(CU:%.cu=$(BUILD)/%.o)	## with CUDA=1: registers and spills of the kernels against tests/cuda_ptxas.txt
	@python3 tests/cuda_ptxas.py tests/cuda_ptxas.txt $(CU:%.cu=$(BUILD)/%.ptxas)

bench: model	## measure prefill and decoding at several lengths, against this machine's limits
	@$(MAKE) --no-print-directory refreshkv
	@./refreshkv bench -m "$$(models/fetch.sh)"

bench-kernels: $(BENCH)	## build the benchmarks of single kernels in tests/bench/

bench-peer: model	## the same beside llama.cpp, which is built from source in build/peer/ (some minutes)
	@$(MAKE) --no-print-directory refreshkv
	@test -x build/peer/bin/python || python3 -m venv build/peer
	@build/peer/bin/pip install -q --no-binary llama-cpp-python llama-cpp-python==0.3.36
	@build/peer/bin/python tests/bench/peer.py ./refreshkv "$$(models/fetch.sh)"

fuzz:	## build the fuzz targets of tests/fuzz/, in build-fuzz/ (needs clang)
	@$(MAKE) --no-print-directory fuzzers BUILD=build-fuzz CC=clang EXTRA='$(FUZZER)'

fuzzers: $(FUZZ)

install: all	## install into $(DESTDIR)$(PREFIX)
	install -Dm755 $(BUILD)/refreshkv '$(DESTDIR)$(PREFIX)/bin/refreshkv'
	install -Dm644 docs/handbook.md '$(DESTDIR)$(PREFIX)/share/doc/refreshkv/handbook.md'
	for f in configs/*.yaml configs/policies/*.yaml; do test ! -e $$f || \
		install -Dm644 $$f "$(DESTDIR)$(PREFIX)/share/refreshkv/$$f"; done
	install -d '$(DESTDIR)$(PREFIX)/share/man/man1' '$(DESTDIR)$(PREFIX)/share/bash-completion/completions'
	$(BUILD)/refreshkv manual > '$(DESTDIR)$(PREFIX)/share/man/man1/refreshkv.1'
	$(BUILD)/refreshkv manual --completion > '$(DESTDIR)$(PREFIX)/share/bash-completion/completions/refreshkv'

clean:	## remove everything that was built (downloads stay)
	rm -rf build build-* refreshkv

refreshkv: $(BUILD)/refreshkv
	@cp $< $@.new && mv $@.new $@

$(BUILD)/refreshkv: $(OBJ)
	@echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(UNIT) $(TOOL) $(BENCH) $(FUZZ): $(BUILD)/%: $(BUILD)/%.o $(AID) $(LIB)
	@echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

$(UNIT_EMU): $(BUILD)/tests/%: $(BUILD)/tests/cuda_emu/%.o $(AID) $(EMU)
	@echo "  LINK  $@"; $(CXX) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

$(UNIT_AVX512): $(BUILD)/tests/%_avx512: $(BUILD)/tests/%.o $(AVX512) $(filter-out $(AVX512_REAL),$(AID) $(LIB))
	@echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

$(PROGRAM_EMU): $(sort $(EMU) $(filter-out $(BUILD)/src/backend/backend.o $(BUILD)/kernels/%,$(OBJ)))
	@echo "  LINK  $@"; $(CXX) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# With CUDA=1: the operation tests against a GPU, for tests/device-check.sh.
$(BUILD)/tests/device_ops: $(BUILD)/tests/cuda_emu/test_cuda_ops.o $(AID) $(LIB)
	@echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

$(FUZZ): LDFLAGS += -fsanitize=fuzzer
$(BUILD)/tests/%.o: CPPFLAGS += -I. -Itests
$(BUILD)/%_avx2.o: CFLAGS += -mavx2 -mfma -mf16c
$(BUILD)/%_avx512.o: CFLAGS += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq
# check_reads() in lin_dot.h says why
build-asan/src/cpu/lin_avx%.o: CFLAGS += --param asan-instrument-reads=0
# clang (the fuzz targets) does not know the pragma by which these files turn VNNI on in part
$(BUILD)/%_avx512.o: CFLAGS += $(if $(findstring clang,$(CC)),-mavx512vnni)

EMU_FLAGS = -std=c++20 -O2 -g -D_GNU_SOURCE -DRK_CUDA -Itests/cuda_emu -Isrc -Ikernels -MMD -MP -ffp-contract=off \
	-fno-strict-aliasing -Wall -Wextra -Wno-unknown-pragmas $(EXTRA)
$(BUILD)/emu/%.o: kernels/%.cu
	@mkdir -p $(@D); echo "  CXX   $<"; $(CXX) -x c++ $(EMU_FLAGS) -c -o $@ $<
$(BUILD)/emu/emu.o: tests/cuda_emu/emu.cpp
	@mkdir -p $(@D); echo "  CXX   $<"; $(CXX) $(EMU_FLAGS) -c -o $@ $<
$(BUILD)/emu/backend.o: src/backend/backend.c
	@mkdir -p $(@D); echo "  CC    $<"; $(CC) $(CPPFLAGS) -DRK_CUDA $(CFLAGS) -c -o $@ $<

# No pragma may ask for real instructions.
AVX512_FLAGS = $(CPPFLAGS) -Itests -include tests/avx512_emu/machine.h $(CFLAGS) -MT $@ -MF $(@:.o=.d) -c -o $@
$(BUILD)/avx512_emu/%.o: src/cpu/%_avx512.c
	@mkdir -p $(@D); echo "  CC    $< (emulated)"; sed '1s|^|#line 1 "$<"\n|; s/^#pragma GCC target.*//' $< | \
		$(CC) -Itests/avx512_emu $(AVX512_FLAGS) -O2 $(if $(filter lin,$*),-fno-inline) -mavx2 -mfma -mf16c -Wno-psabi -x c -
$(BUILD)/avx512_emu/cpu.o: src/cpu/cpu.c
	@mkdir -p $(@D); echo "  CC    $< (emulated)"; $(CC) $(AVX512_FLAGS) $<
$(BUILD)/avx512_emu/%.o: tests/%.c
	@mkdir -p $(@D); echo "  CC    $< (emulated)"; $(CC) $(AVX512_FLAGS) $<
$(BUILD)/avx512_emu/%.o: tests/avx512_emu/%.c
	@mkdir -p $(@D); echo "  CC    $<"; $(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# sm_80 and sm_90 in machine code, PTX for what comes after.  Figures of ptxas go beside the object, the compiler in front.
$(BUILD)/kernels/%.o: kernels/%.cu
	@mkdir -p $(@D); echo "  NVCC  $<"; $(NVCC) --version | sed -n 's/.*, V/nvcc /p' >$(@:.o=.ptxas); $(NVCC) -std=c++20 -O3 -lineinfo -Isrc -Ikernels -D_GNU_SOURCE -MMD -MP -MF $(@:.o=.d) \
		-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90] -Xcompiler -Wall,-Wextra \
		-Xptxas -v -c -o $@ $< 2>>$(@:.o=.ptxas) || { cat $(@:.o=.ptxas) >&2; exit 1; }

$(BUILD)/%.o: %.c
	@mkdir -p $(@D); echo "  CC    $<"; $(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/src/base/embedded_data.o: src/base/embedded_data.S $(BUILD)/embedded.list $(EMBEDDED)
	@mkdir -p $(@D); echo "  AS    $<"; $(CC) -c -Wa,-I$(BUILD) -o $@ $<

# Written anew only when it changes, so that a preset that is added or removed is noticed and nothing else is.
$(BUILD)/embedded.list: FORCE
	@mkdir -p $(@D); printf '\tembed "%s"\n' $(EMBEDDED) | cmp -s - $@ || printf '\tembed "%s"\n' $(EMBEDDED) > $@

-include $(patsubst %.o,%.d,$(OBJ) $(AID) $(EMU) $(AVX512)) $(addsuffix .d,$(UNIT) $(TOOL) $(BENCH) $(FUZZ)) \
	$(UNIT_EMU:$(BUILD)/tests/%=$(BUILD)/tests/cuda_emu/%.d)
