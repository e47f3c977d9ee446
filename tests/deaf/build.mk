# Peers that never read: nothing to compile.
.PHONY: deaf
deaf: ready ## whether 100 peers that ask and never read delay the others, counted in the VM
	@$(PYTHON) -m tests.deaf
