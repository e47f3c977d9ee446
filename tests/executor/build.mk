# Libraries of the tests in this folder; no part of `make build`. The tests make them, also with
# this file alone: make -f tests/executor/build.mk build/tests/libexecutor_driver.so
BUILD ?= build
TEST_PROGRAMS += $(patsubst %,$(BUILD)/tests/lib%.so,executor_driver crash_points single_steps)
EXECUTOR_TEST_FLAGS = -g -Wall -Wextra -Werror -I. -MMD -MP -MF $@.d -MT $@ -fPIC -shared

# -include: cffi reads the header too, and knows these types already.
$(BUILD)/tests/libexecutor_driver.so: tests/executor/driver.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O2 -include shared_page/layout.h $(EXECUTOR_TEST_FLAGS) $< -o $@

$(BUILD)/tests/libcrash_points.so $(BUILD)/tests/libsingle_steps.so: \
$(BUILD)/tests/lib%.so: tests/executor/%.cpp
	@mkdir -p $(@D)
	$(CXX) -std=c++20 -O1 $(EXECUTOR_TEST_FLAGS) $< -o $@

-include $(wildcard $(patsubst %,$(BUILD)/tests/lib%.so.d,executor_driver crash_points single_steps))
