# The soak: nothing to compile.
MINUTES ?= 30

.PHONY: soak
soak: ready ## 70 % of saturation with opens, closes, resets and cancels, MINUTES= (30)
	@$(PYTHON) -m tests.soak --minutes $(MINUTES)
