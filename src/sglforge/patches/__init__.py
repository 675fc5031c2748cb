"""Patch series: topics of edits that are anchored on structure, and the contracts that they must keep."""
