"""Why a plan is as it is, as data, tables and a plot."""
