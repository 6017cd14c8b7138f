"""How the demo model and its problems were made: generator, tokenizer, network, training, evaluation."""
