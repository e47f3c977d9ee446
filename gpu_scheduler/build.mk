# The CPU executor. Every folder of workloads/ is part of it, by being there.
EXECUTOR_CPU := $(BUILD)/bin/executor-cpu
EXECUTOR_CPU_OBJECTS := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(wildcard gpu_scheduler/cpu/*.cpp \
	gpu_scheduler/workloads/*.cpp gpu_scheduler/workloads/*/*.cpp))
PROGRAMS += $(EXECUTOR_CPU)

# Products are not contracted to fused ones and sums keep their order: results have the same bits
# in every build.
$(EXECUTOR_CPU_OBJECTS): $(BUILD)/obj/gpu_scheduler/%.o: gpu_scheduler/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -ffp-contract=off -fvect-cost-model=dynamic -MMD -MP -c -o $@ $<

$(EXECUTOR_CPU): $(EXECUTOR_CPU_OBJECTS)
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -o $@ $^

-include $(EXECUTOR_CPU_OBJECTS:.o=.d)

# Measuring the GPU executor. GPU_PYTHON is a Python that has CuPy.
GPU_PYTHON ?= $(PYTHON)
PAGE_LOAD := $(BUILD)/bin/page-load
HOST_REPLAY := $(BUILD)/lib/host-replay.so
PROGRAMS += $(PAGE_LOAD)

$(PAGE_LOAD): gpu_scheduler/bench/page_load.cpp $(wildcard shared_page/*.h)
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -o $@ $<

$(HOST_REPLAY): gpu_scheduler/bench/host_replay.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -fPIC -o $@ $<

.PHONY: bench-gpu
bench-gpu: $(PAGE_LOAD) $(HOST_REPLAY) ## the figures of docs/gpu.md (an NVIDIA GPU; GPU_PYTHON=python3)
	@$(GPU_PYTHON) -m gpu_scheduler.bench --json docs/results/gpu.json
