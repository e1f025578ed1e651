"""What all tests share."""

from hypothesis import settings

# A deadline is a timed test: on a busy machine an example takes long without a reason of its own.
settings.register_profile("waylog", deadline=None)
settings.load_profile("waylog")
