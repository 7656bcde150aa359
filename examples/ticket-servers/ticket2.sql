-- Ticket server 2 of 2: counts in steps of two, from 2.
-- One sequence for each kind of thing that is numbered.
CREATE SCHEMA tickets;
CREATE SEQUENCE tickets.photos INCREMENT BY 2 START WITH 2;
CREATE SEQUENCE tickets.users INCREMENT BY 2 START WITH 2;
