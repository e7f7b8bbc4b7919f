"""From Python text to what it would do: values, calls and writes in program order. Knows no rule and no library."""
