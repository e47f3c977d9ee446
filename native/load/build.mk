# The load generator: C++20 and libc only (of Boost and nlohmann's JSON it takes headers), so that
# it runs wherever it is copied.
LOAD_OBJECTS := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(wildcard native/load/*.cpp))

PROGRAMS += $(BUILD)/bin/load

$(BUILD)/bin/load: $(LOAD_OBJECTS) $(addprefix $(BUILD)/obj/native/common/,failure.o signals.o)
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -pthread $^ -o $@

$(BUILD)/obj/native/load/%.o: native/load/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -pthread -MMD -MP -c $< -o $@

-include $(LOAD_OBJECTS:.o=.d)
