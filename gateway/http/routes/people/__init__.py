"""Routes of people: their account, friends, shares, and the users for administrators."""
