"""One setting for every property: no deadline, since a shared machine may stall for reasons that are not ours."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("book", deadline=None)
settings.load_profile("book")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def root() -> Path:
    return ROOT
