"""What all figures share: the Figure itself, units and colours, axes."""
