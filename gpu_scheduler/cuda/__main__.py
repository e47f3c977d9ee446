"""executor-cuda."""

import sys

from gpu_scheduler.cuda.program import serve_graphs

sys.exit(serve_graphs())
