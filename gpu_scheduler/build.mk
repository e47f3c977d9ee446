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
