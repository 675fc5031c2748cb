"""Contracts: what must hold on the patched tree before anything is built."""
