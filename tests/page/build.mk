# Programs of the tests in this folder; no part of `make build`. The tests make them, also with
# this file alone: make -f tests/page/build.mk build/tests/libpage_driver.so
BUILD ?= build
CLANG ?= clang-19
TEST_PROGRAMS += $(BUILD)/tests/libpage_driver.so $(BUILD)/tests/page-stress $(BUILD)/tests/page-late
PAGE_TEST_FLAGS = -O2 -g -Wall -Wextra -Werror -I. -MMD -MP -MF $@.d -MT $@

$(BUILD)/tests/libpage_driver.so: tests/page/driver.c
	@mkdir -p $(@D)
	$(CC) -std=c11 $(PAGE_TEST_FLAGS) -fPIC -shared $< -o $@

$(BUILD)/tests/page-stress: tests/page/stress.cpp
	@mkdir -p $(@D)
	$(CXX) -std=c++20 $(PAGE_TEST_FLAGS) -pthread $< -o $@

$(BUILD)/tests/page-late: tests/page/late.cpp
	@mkdir -p $(@D)
	$(CXX) -std=c++20 $(PAGE_TEST_FLAGS) -pthread $< -o $@

$(BUILD)/tests/page-stress-tsan: tests/page/stress.cpp
	@mkdir -p $(@D)
	$(CXX) -std=c++20 $(PAGE_TEST_FLAGS) -O1 -fsanitize=thread -pthread $< -o $@

$(BUILD)/tests/fields.c11.o: tests/page/fields.c
	@mkdir -p $(@D)
	$(CC) -std=c11 $(PAGE_TEST_FLAGS) -c $< -o $@

$(BUILD)/tests/fields.c++20.o: tests/page/fields.c
	@mkdir -p $(@D)
	$(CXX) -std=c++20 $(PAGE_TEST_FLAGS) -x c++ -c $< -o $@

$(BUILD)/tests/fields.bpf.o: tests/page/fields.c
	@mkdir -p $(@D)
	$(CLANG) -target bpf -std=gnu11 -ffreestanding -I/usr/include/$(shell gcc -print-multiarch) \
		$(PAGE_TEST_FLAGS) -c $< -o $@

-include $(wildcard $(BUILD)/tests/*.d)
