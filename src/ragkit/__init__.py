"""ragkit: the small package behind the lab book on retrieval-augmented generation over space text.

Rooms import only from lower floors: records, profile, vram; corpus, models, lab; retrieval; answering;
evaluation; cli. Nothing heavy is imported here, so that `import ragkit` costs nothing.
"""

import os

__version__ = "0.1.0"

# Nothing in the book phones home: libraries underneath read these before they are imported.
for _switch in ("HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK", "VLLM_NO_USAGE_STATS"):
    os.environ.setdefault(_switch, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
