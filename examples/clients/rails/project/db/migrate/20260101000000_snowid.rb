# db/snowid.sql is a copy of portable/snowid.sql, or says CREATE EXTENSION snowid.
class Snowid < ActiveRecord::Migration[6.1]
  def up
    say_with_time("snowid") { connection.execute(Rails.root.join("db/snowid.sql").read) }
    execute "SELECT snowid.register_shard(5, 'public')"
  end
end
