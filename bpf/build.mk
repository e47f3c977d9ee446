# CO-RE objects. -mcpu=v4 for atomics that return a value; no vmlinux.h: what is
# needed of the kernel's types is in bpf/include/kernel.h, relocated at load.
BPF_OBJECTS := $(patsubst bpf/%.bpf.c,$(BUILD)/bpf/%.bpf.o,$(wildcard bpf/*.bpf.c))
BPF_CFLAGS := -target bpf -mcpu=v4 -std=gnu11 -O2 -g -ffreestanding -Wall -Werror \
	-I. -Ibpf/include -I/usr/include/$(shell gcc -print-multiarch)

PROGRAMS += $(BPF_OBJECTS)

$(BUILD)/bpf/%.bpf.o: bpf/%.bpf.c
	@mkdir -p $(@D)
	$(CLANG) $(BPF_CFLAGS) -MMD -MP -c $< -o $@

-include $(BPF_OBJECTS:.o=.d)
