# Fuzz targets: libFuzzer with the address and undefined-behaviour sanitizers. Also with this file
# alone: make -f tests/fuzz/build.mk build/fuzz/admission
BUILD ?= build
CLANG ?= clang-19
PYTHON ?= python3
FUZZ_TARGETS := $(patsubst tests/fuzz/%.cpp,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/*.cpp))
FUZZ_FLAGS = -std=c++20 -O2 -g -Wall -Wextra -Werror -I. -fno-omit-frame-pointer \
	-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined

TEST_PROGRAMS += $(FUZZ_TARGETS)

$(FUZZ_TARGETS): $(BUILD)/fuzz/%: tests/fuzz/%.cpp
	@mkdir -p $(@D)
	$(subst clang,clang++,$(CLANG)) $(FUZZ_FLAGS) -MMD -MP -MF $@.d -MT $@ $< -o $@

SECONDS ?= 60
.PHONY: fuzz
fuzz: $(FUZZ_TARGETS) ## fuzz the frame parser and the page, SECONDS= each (60)
	@$(PYTHON) -m tests.fuzz.run --seconds $(SECONDS)

-include $(FUZZ_TARGETS:=.d)
