"""Conditions that a finding rests on: branches, versions, and which of them are open."""
