"""Tables of a bank: query sets, prompts, and what tokens say."""
