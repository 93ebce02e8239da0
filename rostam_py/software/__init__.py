"""Software: the program that trains, as what it does around the ops of a model (MODEL B7)."""
