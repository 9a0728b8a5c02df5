"""What is measured: one decoder layer, its weights, its inputs, its reference."""
