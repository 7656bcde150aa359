<?php
require_once 'Illuminate/Database/autoload.php';
require_once getcwd() . '/shards.php';

while (fgets(STDIN)) {
	try {
		echo in_shard_of(31341, fn ($db, $schema) => $db->selectOne("INSERT INTO $schema.photos (user_id, caption) VALUES (31341, 'a') RETURNING current_setting('port') AS port")->port), "\n";
	} catch (Throwable $e) {
		echo 'lost ', get_class($e), ' ', strtr($e->getMessage(), "\n", ' '), "\n";
	}
}
