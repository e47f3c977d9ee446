# The whole chain in one place: Linux 7.3's request loop in a VM, the executor outside of it.
CHAIN_PACK := $(BUILD)/chain-pack.tar.xz
CHAIN_PROGRAMS := bin/load bin/executor-cpu bpf/ingress.bpf.o bpf/loop.bpf.o
# What the service and the load generator need of the VM's Debian, beside Python itself.
CHAIN_PYTHON := cffi _cffi_backend.cpython-313-x86_64-linux-gnu.so click ply pycparser
CHAIN_LIBRARIES := libbpf.so.1 liburing-ffi.so.2
CHAIN_PATHS := $(addprefix usr/lib/python3/dist-packages/,$(CHAIN_PYTHON)) \
	$(addprefix usr/lib/x86_64-linux-gnu/,$(CHAIN_LIBRARIES))

.PHONY: chain-pack
chain-pack: ready ## one archive with all that `make chain` needs on a machine without QEMU
	@$(PYTHON) -m vm pack $(CHAIN_PACK) $(addprefix --path ,$(CHAIN_PATHS)) \
		$(foreach file,$(CHAIN_PROGRAMS),--add $(file)=$(BUILD)/$(file))
	@ls -l $(CHAIN_PACK)

# Builds nothing: where there is no compiler either, PACK is the archive of `make chain-pack`.
EXECUTOR ?= cuda
.PHONY: chain
chain: ## Linux 7.3's loop in a VM, served by a GPU outside (GPU_PYTHON=python3 PACK=archive)
	@$(GPU_PYTHON) -m experiments chain --executor $(EXECUTOR) $(if $(PACK),--pack $(PACK))
