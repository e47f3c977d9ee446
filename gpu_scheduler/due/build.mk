# An executor that computes nothing.
PROGRAMS += $(BUILD)/bin/executor-due

$(BUILD)/bin/executor-due: gpu_scheduler/due/main.cpp
	@mkdir -p $(@D) $(BUILD)/obj/gpu_scheduler/due
	$(CXX) $(CXXFLAGS) -MMD -MP -MF $(BUILD)/obj/gpu_scheduler/due/main.d $< -o $@

-include $(BUILD)/obj/gpu_scheduler/due/main.d
