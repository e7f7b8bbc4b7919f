"""What runs on a simulated card, one module each: ``main(arguments)`` returns what a test looks at, as plain data."""
