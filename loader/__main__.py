"""`python -m loader` is `bpf-gpu-server`, where nothing was installed."""

from loader.cli import main

main()
