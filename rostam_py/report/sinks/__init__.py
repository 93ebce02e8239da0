"""Where results go besides the page: files for papers, Weights & Biases."""
