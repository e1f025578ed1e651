"""The log of one partition on disk."""

from broker_core.log.config import FOREVER, LogConfig
from broker_core.log.log import AppendResult, Log

__all__ = ["FOREVER", "AppendResult", "Log", "LogConfig"]
