"""Conditions that a finding rests on: values, versions, and which of them are open."""
