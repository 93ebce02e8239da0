"""The report of a validation: errors of every row, and what each predicted iteration consists of."""
