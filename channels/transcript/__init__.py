"""Folds what a run's stream brings into views of the reply."""

from channels.transcript.merging import _merge_stream_text
from channels.transcript.transcript import Transcript

__all__ = ["Transcript", "_merge_stream_text"]
