"""Property tests draw the same examples in every run, so that a failure is one for everybody.

``HYPOTHESIS_PROFILE=default`` draws new ones; ``make test-slow`` does.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
