# structure.sql has no rows, so not the registry's.
ActiveRecord::Base.connection.execute("SELECT snowid.register_shard(5, 'public')")
