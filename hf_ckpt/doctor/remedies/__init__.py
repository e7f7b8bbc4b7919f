"""What would have fitted: a smaller batch by what the steps that fitted took, another policy by forecast."""
