class CreatePhotos < ActiveRecord::Migration[6.1]
  def change
    create_table :photos, id: :bigint, default: -> { "next_id()" } do |t|
      t.bigint :user_id, null: false
      t.text :caption, null: false
    end
  end
end
