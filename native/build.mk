# The native servers; native/load has its own.
native_objects = $(patsubst %.cpp,$(BUILD)/obj/%.o,$(wildcard $(1)/*.cpp))
NATIVE_COMMON := $(call native_objects,native/common)
NATIVE_EPOLL := $(call native_objects,native/epoll)
NATIVE_ECHO := $(call native_objects,native/echo)
NATIVE_OBJECTS := $(NATIVE_COMMON) $(NATIVE_EPOLL) $(NATIVE_ECHO)
NATIVE_PROGRAMS := $(BUILD)/bin/server-epoll $(BUILD)/bin/echo-epoll

PROGRAMS += $(NATIVE_PROGRAMS)

$(BUILD)/bin/server-epoll: $(NATIVE_EPOLL) $(NATIVE_COMMON)
$(BUILD)/bin/echo-epoll: $(NATIVE_ECHO) $(NATIVE_COMMON)

$(NATIVE_PROGRAMS):
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) $^ -o $@

$(NATIVE_OBJECTS): $(BUILD)/obj/%.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -MMD -MP -c $< -o $@

-include $(NATIVE_OBJECTS:.o=.d)
