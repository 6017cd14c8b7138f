"""What a sweep leaves: records, the journal, and the results folder."""
